"""Findings of a security review of 0.1.0, each as a test that failed there."""
