"""What an operator does to workers besides running a program: look, free, set up, forward a port."""
