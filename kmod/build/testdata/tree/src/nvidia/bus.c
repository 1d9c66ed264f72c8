int bus(void) { return 2; }
