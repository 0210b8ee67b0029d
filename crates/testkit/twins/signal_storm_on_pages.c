/* A 10 kHz timer whose handler does aligned 8 KiB I/O: the fast path holds no lock and no context
 * that the handler could find half used. */
#include "signal_storm.h"

int main(int argc, char **argv)
{
    start(argc, argv);
    storm("pages", 8192, 0);
    return 0;
}
