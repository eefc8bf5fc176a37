// Package localstats keeps the small things that an agent remembers beside what it
// was told: where the bytes of a bundle came from (on disk, a statistic), where those of
// a blob came from lately (in memory, for a sentence), and since when something is not wanted (in memory; a restart begins anew).
//
// Inputs: what happens. Outputs: sums, a yes or no. Caller: the agent's wiring.
package localstats
