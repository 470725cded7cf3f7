"""What other libraries hold, as logs and policies; none of them is needed to import these modules.

from scopeval.integrations import sb3, d3rlpy, rllib, tables
"""
