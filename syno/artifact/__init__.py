"""The data that the paper's authors published: reading its measurements and operators, and the page of an import."""
