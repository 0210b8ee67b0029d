/* As fortified_calls, by the names without 64: __open_2, __openat_2, __pread_chk. */
#undef _FILE_OFFSET_BITS
#include "fortified_calls.c"
