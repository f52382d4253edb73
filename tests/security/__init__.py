"""What a security review of 0.1.0 found, each as a test that failed there."""
