"""What we tell people to change: one table a family, each entry tried by a test that shows the break before and after."""
