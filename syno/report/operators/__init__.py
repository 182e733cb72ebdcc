"""Pages, cards and folders of single operators."""
