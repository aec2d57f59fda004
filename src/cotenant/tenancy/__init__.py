"""The tree of tenants at work: who may claim what, who has borrowed from whom, and the sums behind it in words."""
