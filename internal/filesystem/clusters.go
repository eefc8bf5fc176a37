package filesystem

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"
)

// Limits of the FAT family, next to those of every reader.
const (
	// maxRuns is how many pieces a file may have. They are in memory while the file is open, 8 bytes each.
	maxRuns = 1 << 17
	// maxDirectorySize is how many bytes of a directory are read. It bounds the names in memory.
	maxDirectorySize = 8 << 20
	// tableWindow is how much of the allocation table is read at once.
	tableWindow = 4096
	// firstCluster is the number of the first cluster on every volume of the family.
	firstCluster = 2
)

// leBytes are bytes of the medium with numbers in little-endian order.
type leBytes []byte

func (b leBytes) u16(at int) uint16 { return binary.LittleEndian.Uint16(b[at:]) }
func (b leBytes) u32(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
func (b leBytes) u64(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// clusterHeap is the part of a FAT or exFAT volume that has the contents of files and directories,
// with the allocation table that links its clusters to chains. All offsets are bytes of the medium.
type clusterHeap struct {
	medium
	// table and tableSize are the place of the active allocation table.
	table, tableSize int64
	// bits is the width of a table entry: 12, 16 or 32.
	bits uint
	// mask has the bits of an entry that count, and end is the least value that ends a chain.
	mask, end uint32
	// start is the place of the first cluster, cluster the length of each, count how many there are.
	start, cluster int64
	count          uint32
}

// capacity returns the bytes of all clusters.
func (h *clusterHeap) capacity() int64 { return int64(h.count) * h.cluster }

// clusters returns how many clusters so many bytes need.
func (h *clusterHeap) clusters(size int64) int64 {
	n := size / h.cluster
	if size%h.cluster != 0 {
		n++
	}
	return n
}

func (h *clusterHeap) checkCluster(c uint32) error {
	if c < firstCluster || c-firstCluster >= h.count {
		return fmt.Errorf("cluster %d is outside of the volume, which has clusters %d to %d", c, firstCluster, int64(h.count)+firstCluster-1)
	}
	return nil
}

// checkTable reports an allocation table that is too small for the clusters.
func (h *clusterHeap) checkTable() error {
	if need := ((int64(h.count)+firstCluster)*int64(h.bits) + 7) / 8; need > h.tableSize {
		return fmt.Errorf("boot sector: allocation table has %d bytes, %d clusters need %d", h.tableSize, h.count, need)
	}
	return nil
}

// clusterRun is a part of a file that is contiguous on the medium. It ends where the next one starts.
type clusterRun struct {
	// start is the number of the run's first cluster in the file, cluster its number on the volume.
	start, cluster uint32
}

// clusterChain is what the allocation table has for a file or directory.
type clusterChain struct {
	runs []clusterRun
	// length is the number of clusters.
	length int64
	// ended is whether the chain ends here; otherwise the limit was reached.
	ended bool
}

// follow returns at most limit clusters of the chain that starts at first.
func (h *clusterHeap) follow(first uint32, limit int64) (clusterChain, error) {
	var chain clusterChain
	table := tableReader{heap: h}
	previous := uint32(0)
	for c := first; chain.length < limit && !chain.ended; {
		if err := h.checkCluster(c); err != nil {
			if chain.length > 0 {
				err = fmt.Errorf("after cluster %d: %w", previous, err)
			}
			return chain, err
		}
		if chain.length == 0 || c != previous+1 {
			if len(chain.runs) == maxRuns {
				return chain, chain.tooManyRuns()
			}
			chain.runs = append(chain.runs, clusterRun{start: uint32(chain.length), cluster: c})
		}
		chain.length++
		next, err := table.next(c)
		if err != nil {
			return chain, err
		}
		chain.ended = next >= h.end
		previous, c = c, next
	}
	return chain, chain.checkLoop()
}

// tooManyRuns returns why a chain has too many runs: a loop, or the writer.
func (c *clusterChain) tooManyRuns() error {
	if err := c.checkLoop(); err != nil {
		return err
	}
	return fmt.Errorf("split into more than %d pieces", maxRuns)
}

// checkLoop reports a cluster that is in the chain twice. Each round of a loop starts a new run,
// so that comparing runs is enough.
func (c *clusterChain) checkLoop() error {
	type span struct{ first, last uint32 }
	spans := make([]span, len(c.runs))
	for i, r := range c.runs {
		end := c.length
		if i+1 < len(c.runs) {
			end = int64(c.runs[i+1].start)
		}
		spans[i] = span{r.cluster, r.cluster + uint32(end-int64(r.start)) - 1}
	}
	sort.Slice(spans, func(i, j int) bool { return spans[i].first < spans[j].first })
	for i := 1; i < len(spans); i++ {
		if spans[i].first <= spans[i-1].last {
			return fmt.Errorf("loop in the cluster chain: cluster %d is in it twice", spans[i].first)
		}
	}
	return nil
}

// tableReader reads entries of the allocation table. Chains go forward mostly, so it reads ahead.
type tableReader struct {
	heap   *clusterHeap
	buffer [tableWindow]byte
	// at is the offset of the buffer in the table, n how many bytes it has.
	at, n int64
}

// next returns the table's entry of a cluster that is on the volume.
func (t *tableReader) next(cluster uint32) (uint32, error) {
	at := int64(cluster) * int64(t.heap.bits) / 8
	width := int64(t.heap.bits+7) / 8
	if at < t.at || at+width > t.at+t.n {
		t.at, t.n = at, min(tableWindow, t.heap.tableSize-at)
		if err := t.heap.readFull(t.buffer[:t.n], t.heap.table+at, "allocation table"); err != nil {
			t.n = 0
			return 0, fmt.Errorf("entry of cluster %d: %w", cluster, err)
		}
	}
	b := leBytes(t.buffer[at-t.at:])
	var v uint32
	switch {
	case t.heap.bits == 32:
		v = b.u32(0)
	case t.heap.bits == 12 && cluster%2 == 1:
		v = uint32(b.u16(0) >> 4)
	default:
		v = uint32(b.u16(0))
	}
	return v & t.heap.mask, nil
}

// clusterContent reads what a chain of clusters has. It is for use in an io.SectionReader of size bytes.
type clusterContent struct {
	heap *clusterHeap
	runs []clusterRun
	size int64
	// valid is how many bytes were written; those after it are zeros.
	valid int64
}

// content checks where a file or directory is on the volume.
func (h *clusterHeap) content(n *clusterNode) (*clusterContent, error) {
	c := &clusterContent{heap: h, size: n.size, valid: n.valid}
	limit := h.clusters(maxDirectorySize)
	if n.dir && (n.size == sizeUnknown || h.clusters(n.size) > limit) {
		return h.directory(n, limit)
	}
	if n.size == 0 {
		return c, nil
	}
	if n.size > h.capacity() {
		return nil, fmt.Errorf("size of %d bytes is larger than the volume, which has %d", n.size, h.capacity())
	}
	need := h.clusters(n.size)
	if n.contiguous {
		c.runs = []clusterRun{{cluster: n.first}}
		return c, h.checkContiguous(n.first, need)
	}
	chain, err := h.follow(n.first, need)
	if err == nil && chain.length < need {
		err = fmt.Errorf("cluster chain ends after %d clusters, %d bytes need %d", chain.length, n.size, need)
	}
	c.runs = chain.runs
	return c, err
}

func (h *clusterHeap) checkContiguous(first uint32, need int64) error {
	if err := h.checkCluster(first); err != nil {
		return err
	}
	if int64(first)+need > int64(h.count)+firstCluster {
		return fmt.Errorf("%d contiguous clusters from %d on do not fit into the volume, which ends with %d", need, first, int64(h.count)+firstCluster-1)
	}
	return nil
}

// directory returns a directory whose size only its chain has.
func (h *clusterHeap) directory(n *clusterNode, limit int64) (*clusterContent, error) {
	if n.size != sizeUnknown {
		return nil, fmt.Errorf("directory of %d bytes is larger than %d", n.size, limit*h.cluster)
	}
	chain, err := h.follow(n.first, limit)
	if err == nil && !chain.ended {
		err = fmt.Errorf("directory is larger than %d bytes", limit*h.cluster)
	}
	size := chain.length * h.cluster
	return &clusterContent{heap: h, runs: chain.runs, size: size, valid: size}, err
}

// ReadAt reads each run that p covers in one piece.
func (c *clusterContent) ReadAt(p []byte, off int64) (int, error) {
	return c.heap.readExtents(p, off, c.find)
}

// find returns the part of the contents that starts at an offset and is in one piece on the medium.
func (c *clusterContent) find(off int64) (extent, error) {
	if off >= c.valid {
		return extent{length: math.MaxInt64, zeros: true}, nil
	}
	cluster := off / c.heap.cluster
	i := sort.Search(len(c.runs), func(i int) bool { return int64(c.runs[i].start) > cluster }) - 1
	end := c.valid
	if i+1 < len(c.runs) {
		end = min(end, int64(c.runs[i+1].start)*c.heap.cluster)
	}
	run := c.runs[i]
	at := c.heap.start + (int64(run.cluster)-firstCluster-int64(run.start))*c.heap.cluster + off
	return extent{at: at, length: end - off}, nil
}
