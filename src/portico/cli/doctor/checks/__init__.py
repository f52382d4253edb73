"""The checks of `portico doctor`, one module for each subject."""
