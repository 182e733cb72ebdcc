"""Measurements on machines that are reached by the OpenSSH client. What runs there is `syno.measure.remote_measurement`."""
