/* A libcuda.so.1 that can do nothing: cuDNN looks for these before it says which engines it has for a described GPU. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define ABSENT 100 /* no device */
#define X(name)                                                                                                        \
    int name(void);                                                                                                    \
    int name(void)                                                                                                     \
    {                                                                                                                  \
        return ABSENT;                                                                                                 \
    }

X(cuGetErrorName)
X(cuGetErrorString)
X(cuDeviceGetCount)
X(cuDeviceGet)
X(cuCtxGetCurrent)
X(cuCtxGetDevice)
X(cuCtxGetLimit)
X(cuCtxPopCurrent)
X(cuCtxPushCurrent)
X(cuStreamGetCtx)
X(cuLinkCreate)
X(cuLinkAddData)
X(cuLinkComplete)
X(cuLinkDestroy)
X(cuLaunchKernel)
X(cuLaunchCooperativeKernel)
X(cuLaunchKernelEx)
X(cuLibraryLoadData)
X(cuLibraryLoadFromFile)
X(cuLibraryGetKernel)
X(cuLibraryUnload)
X(cuKernelSetAttribute)
X(cuKernelGetAttribute)
X(cuOccupancyMaxPotentialClusterSize)

int cuDriverGetVersion(int *ret);
int cuDriverGetVersion(int *ret)
{
    *ret = 13000;
    return 0;
}
