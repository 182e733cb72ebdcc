"""From searches to files that people read: operators, tables, figures."""
