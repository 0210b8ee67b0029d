/* A 10 kHz timer whose handler does I/O inside 16-byte blocks, as the main loop does, which also
 * opens, closes and stats: a slow path that is interrupted in its lock must not wait for itself. */
#include "signal_storm.h"

int main(int argc, char **argv)
{
    start(argc, argv);
    storm("odd", 1003, 1);
    return 0;
}
