// Package fetcher is the node half of distribute: it fetches the chunks that this
// node wants from its neighbours, several at once, until all are here.
//
// Promise: the rarest chunk first; every chunk is compared before it counts; a
// neighbour that lies, is slow or away costs only itself (it is put aside, for
// longer each time); what is here is never fetched again. It ends only when
// everything wanted is here, when the context ends, or when this node's own
// disk fails.
//
// Inputs: a Shelf (what is here), the wanted chunks, neighbours. Outputs: the
// shelf is fuller; Stats. Caller: the agent's wiring.
package fetcher
