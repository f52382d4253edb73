"""What `portico doctor` checks, one module for each subject."""
