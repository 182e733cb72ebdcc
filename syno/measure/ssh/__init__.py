"""Measurements on machines that are reached by the OpenSSH client. They run `syno.measure.remote_measurement`."""
