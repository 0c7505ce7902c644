"""What breaks jobs in practice: a machine is looked at before a job finds out, and each finding says what to do."""
