"""What people look at: operators on a page, the way to one, tables and pictures of measurements."""
