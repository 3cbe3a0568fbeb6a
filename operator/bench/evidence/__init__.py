"""Evidence that the simulator and the autoscaler can be trusted: each item runs, prints its figures, and says `ok`."""
