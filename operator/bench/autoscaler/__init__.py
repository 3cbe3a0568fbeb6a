"""What one tick of the autoscaler costs: a fleet's series in a real Prometheus, every service decided for, nothing carried
out."""
