"""What reproduces the paper or measures speed. Its commands load it; nothing else imports it."""
