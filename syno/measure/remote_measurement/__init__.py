"""The side of a machine that is reached by ssh: it measures as it is asked, detached from the connection."""
