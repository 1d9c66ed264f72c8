/* A libcuda with two GPUs whose memory is the host's and whose streams are
 * synchronous. It answers with values that show which arguments arrived. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef void *handle;
typedef uint64_t CUdeviceptr;

static _Thread_local handle current;
static int peers[2][2], polls;

#define DEVICE(ctx) ((int)(intptr_t)(ctx)-100)
#define NEED_CONTEXT() do { if (!current) return 201; } while (0)

CUresult cuInit(unsigned flags) { return getenv("STUB_INIT") ? atoi(getenv("STUB_INIT")) : (int)flags; }
CUresult cuDriverGetVersion(int *v) { *v = 12040; return 0; }
CUresult cuDeviceGetCount(int *n) { *n = 2; return 0; }
CUresult cuDeviceGet(CUdevice *d, int i) { *d = i; return 0; }
CUresult cuDeviceGetName(char *s, int n, CUdevice d) { snprintf(s, n, "Stub %d", d); return 0; }
CUresult cuDeviceGetUuid_v2(unsigned char *u, CUdevice d) { for (int i = 0; i < 16; i++) u[i] = 16 * d + i; return 0; }
CUresult cuDeviceGetPCIBusId(char *s, int n, CUdevice d) { snprintf(s, n, "0000:A%d:00.0", d); return 0; }
CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { *n = (size_t)(d + 1) << 34; return 0; }
CUresult cuDeviceGetAttribute(int *v, int a, CUdevice d) { *v = 1000 * d + a; return 0; }
CUresult cuDeviceCanAccessPeer(int *v, CUdevice d, CUdevice p) { *v = d < p; return 0; }
CUresult cuDeviceGetP2PAttribute(int *v, int a, CUdevice d, CUdevice p) { *v = a == 1 ? 10 * d + p : a % 2; return 0; }
CUresult cuDevicePrimaryCtxRetain(handle *c, CUdevice d) { *c = (handle)(intptr_t)(100 + d); return 0; }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) { return d < 2 ? 0 : 101; }
CUresult cuCtxSetCurrent(handle c) { current = c; return 0; }
CUresult cuCtxEnablePeerAccess(handle peer, unsigned flags)
{
	NEED_CONTEXT();
	if (peers[DEVICE(current)][DEVICE(peer)]++)
		return 704;
	return flags;
}
CUresult cuCtxDisablePeerAccess(handle peer)
{
	NEED_CONTEXT();
	if (!peers[DEVICE(current)][DEVICE(peer)])
		return 705;
	peers[DEVICE(current)][DEVICE(peer)] = 0;
	return 0;
}
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n)
{
	NEED_CONTEXT();
	if (n > (size_t)1 << 30)
		return 2;
	*p = (uintptr_t)malloc(n);
	return 0;
}
CUresult cuMemFree_v2(CUdeviceptr p) { NEED_CONTEXT(); free((void *)(uintptr_t)p); return 0; }
CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) { NEED_CONTEXT(); *p = malloc(n); return flags == 3 ? 0 : 1; }
CUresult cuMemFreeHost(void *p) { NEED_CONTEXT(); free(p); return 0; }
CUresult cuMemGetInfo_v2(size_t *f, size_t *t)
{
	NEED_CONTEXT();
	*t = (size_t)(DEVICE(current) + 1) << 34;
	*f = *t / 2;
	return 0;
}
CUresult cuStreamCreate(handle *s, unsigned flags) { NEED_CONTEXT(); *s = current; return flags == 1 ? 0 : 1; }
CUresult cuStreamDestroy_v2(handle s) { return s == current ? 0 : 400; }
CUresult cuStreamQuery(handle s) { return s != current ? 400 : polls++ % 2 ? 0 : 600; }
CUresult cuMemcpyAsync(CUdeviceptr d, CUdeviceptr s, size_t n, handle q)
{
	memcpy((void *)(uintptr_t)d, (void *)(uintptr_t)s, n);
	return q == current ? 0 : 400;
}
CUresult cuMemcpyPeerAsync(CUdeviceptr d, handle dc, CUdeviceptr s, handle sc, size_t n, handle q)
{
	if (DEVICE(dc) != 1 || DEVICE(sc) != 0)
		return 1;
	return cuMemcpyAsync(d, s, n, q);
}
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned w, size_t n, handle q)
{
	for (size_t i = 0; i < n; i++)
		((unsigned *)(uintptr_t)d)[i] = w;
	return q == current ? 0 : 400;
}
struct event { int time; };
static int now;
CUresult cuEventCreate(handle *e, unsigned flags) { NEED_CONTEXT(); *e = calloc(1, sizeof(struct event)); return flags; }
CUresult cuEventDestroy_v2(handle e) { free(e); return 0; }
CUresult cuEventRecord(handle e, handle s) { ((struct event *)e)->time = now += 3; return s == current ? 0 : 400; }
CUresult cuStreamWaitEvent(handle s, handle e, unsigned flags) { return s == current && ((struct event *)e)->time ? (int)flags : 400; }
CUresult cuEventElapsedTime(float *ms, handle a, handle b)
{
	*ms = (((struct event *)b)->time - ((struct event *)a)->time) / 2.0f;
	return 0;
}
CUresult cuGetErrorName(CUresult r, const char **s) { *s = r == 4242 ? 0 : r == 704 ? "CUDA_ERROR_STUB" : "CUDA_ERROR_OTHER"; return r == 4242; }
CUresult cuGetErrorString(CUresult r, const char **s) { *s = r == 4242 ? 0 : r == 704 ? "already enabled" : "other"; return r == 4242; }

/* A module is a copy of its text; its one kernel stores the weighted sum of its
 * parameters 1 to 3, the size of the grid and the block where parameter 0 says. */
CUresult cuModuleLoadDataEx(handle *m, const char *image, unsigned n, int *options, void **values)
{
	NEED_CONTEXT();
	if (n != 2 || options[0] != 5 || options[1] != 6)
		return 1;
	if (strncmp(image, ".version", 8)) {
		snprintf(values[0], (size_t)values[1], "line 1: no .version in %zu bytes\n", strlen(image));
		return 218;
	}
	*m = strdup(image);
	return 0;
}
CUresult cuModuleUnload(handle m) { NEED_CONTEXT(); free(m); return 0; }
CUresult cuModuleGetFunction(handle *f, handle m, const char *name)
{
	NEED_CONTEXT();
	*f = strstr(m, name);
	return *f ? 0 : 500;
}
CUresult cuLaunchKernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			unsigned shared, handle s, uint64_t **params, void **extra)
{
	NEED_CONTEXT();
	if (!f || !bx || s != current || gy * gz * by * bz != 1 || shared || extra)
		return 1;
	*(uint64_t *)(uintptr_t)*params[0] = *params[1] + 10 * *params[2] + 100 * *params[3] + 1000 * gx + 1000000 * bx;
	return 0;
}
