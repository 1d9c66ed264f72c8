int uvm(void) { return 4; }
