// A stand-in for libnvidia-ml.so.1 with one GPU, at 0000:41:00.0.
#include <string.h>

typedef void *dev;
static int gpu;

const char *nvmlErrorString(int r) { return r == 6 ? "Not Found" : "Uninitialized"; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, dev *d) {
	if (strcmp(id, "0000:41:00.0"))
		return 6;
	*d = &gpu;
	return 0;
}
int nvmlDeviceGetClockInfo(dev d, int type, unsigned *mhz) {
	*mhz = type == 1 ? 1980 : type == 2 ? 2619 : 0;
	return d == &gpu ? 0 : 1;
}
int nvmlDeviceGetTemperature(dev d, int sensor, unsigned *c) {
	*c = 41 + sensor;
	return d == &gpu ? 0 : 1;
}
int nvmlDeviceGetPcieReplayCounter(dev d, unsigned *n) {
	*n = 7;
	return d == &gpu ? 0 : 1;
}
