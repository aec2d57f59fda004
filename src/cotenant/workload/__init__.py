"""Where jobs come from: trace readers and writers, generators, profiles (truth), estimators (belief)."""
