"""Durations predicted from a log's own past, as the jobs of a log arrive (Helios, SC'21, section 4.2).

What is known when a job is submitted: every job that *ended* strictly before, with its duration, and every job
that was *submitted* before, without. The end of a job is its submission plus its duration, as if nobody had ever
waited, so that beliefs depend on the log alone and not on the policy that uses them. That is early where jobs wait;
a workload that carries ends of its own (`extra["ended_s"]`) is believed instead.
"""
