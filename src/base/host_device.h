#pragma once
// Functions that host and device code share. Such a header includes nothing of CUDA.

#ifdef __CUDACC__
#define HAYATE_HOST_DEVICE __host__ __device__
#else
#define HAYATE_HOST_DEVICE
#endif
