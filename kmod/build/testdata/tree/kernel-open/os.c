int os(void) { return 3; }
