/* bcryptprimitives.dll: Wine 8 lacks it, and programs built with Go 1.20 and later do not run without its one function. */
#include <windows.h>

BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG size); /* RtlGenRandom of advapi32 */

#define PORTION 0x10000000u

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T size)
{
    while (size) {
        ULONG portion = size > PORTION ? PORTION : (ULONG)size;
        if (!SystemFunction036(buffer, portion))
            return FALSE;
        buffer += portion;
        size -= portion;
    }
    return TRUE;
}

BOOL WINAPI start(HINSTANCE module, DWORD reason, void *reserved)
{
    (void)module, (void)reason, (void)reserved;
    return TRUE;
}
