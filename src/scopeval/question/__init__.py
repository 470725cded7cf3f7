"""What is asked, what is promised, and when it ends: values, checked where they are made."""
