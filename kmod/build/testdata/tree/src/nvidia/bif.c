int bif(void) { return 1; }
