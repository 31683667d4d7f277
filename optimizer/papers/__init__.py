"""Published algorithms for reference, and their evaluations run again. Production imports none of them."""
