package luagate;

/**
 * What a gate has counted since it was made. No counter ever decreases. The counters are read one
 * after the other: a grant that is made at the same time may show in one and not yet in the next.
 *
 * @param granted permits that were handed out, at once or after a wait. Each grant counts once,
 *     regardless of its number of permits. If several semaphores are acquired together, each grant
 *     counts, even if it is given back because another semaphore is not free in time
 * @param denied callers that were refused because of other callers: a {@code tryAcquire} that was
 *     denied, a wait in line that timed out, and a full line. Failures of the server and
 *     interrupted waits do not count
 * @param lineFull the part of {@code denied} that did not join the line because it was full
 * @param waited the part of {@code granted} that waited in line first
 * @param lost permits that turned out to be lost while this process held them. Each counts once,
 *     when the loss is noticed: at the end of its lease, by a refused refresh or renewal, or by a
 *     release that found nothing. A permit whose release had to be repeated does not count, since
 *     the first release may have been carried out
 * @param renewed renewals in the background that the server confirmed: one for each permit and each
 *     time. Calls of {@link Permit#refresh} do not count
 * @param reconnects connections that replaced one that broke or did not answer in time, and
 *     subscriptions that were re-established
 */
public record Counters(
    long granted,
    long denied,
    long lineFull,
    long waited,
    long lost,
    long renewed,
    long reconnects) {}
