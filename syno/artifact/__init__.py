"""Reading the data that the paper's authors published: measurements and operators, whatever part of them is there."""
