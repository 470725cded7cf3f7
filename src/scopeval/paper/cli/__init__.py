"""The commands that reproduce the paper, train its robots and measure speed."""
