package kubelet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// sqlitePages reads the pages of a database that no process has open, with the changes that its
// log has committed. The agent has no SQLite: it would make the agent a third larger.
type sqlitePages struct {
	db, wal *os.File
	// size of a page in bytes, usable what of it is for content, count the number of pages.
	size, usable int
	count        uint32
	// logged is where the log has the newest committed version of a page.
	logged map[uint32]int64
	// used pages, a bit each: no page has two uses.
	used []uint64
}

const (
	atReserved     = 20
	atFreelist     = 32
	atFreePages    = 36
	atLargestRoot  = 52
	atEncoding     = 56
	atWALSalt      = 16
	walFrame       = 24
	lockByte       = 1 << 30 // the page with this byte has no content
	journalMagic   = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
	maxSQLitePages = 1 << 28
)

var errPage = errors.New("damaged")

// openSQLite opens a database whose files checkSQLite accepts.
func openSQLite(name string) (_ *sqlitePages, err error) {
	if err := checkSQLite(name); err != nil {
		return nil, err
	}
	if b, err := os.ReadFile(name + "-journal"); err == nil && len(b) > 8 && string(b[:8]) == journalMagic {
		return nil, fmt.Errorf("%s-journal has a change that was cut off: only SQLite itself undoes it", name)
	}
	p := &sqlitePages{logged: map[uint32]int64{}}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	if p.db, err = os.Open(name); err != nil {
		return nil, err
	}
	head, size, err := readHead(name, sqliteHeader)
	if err != nil {
		return nil, err
	}
	if p.size = int(binary.BigEndian.Uint16(head[atPageSize:])); p.size == 1 {
		p.size = 65536
	}
	p.count = uint32(min(size/int64(p.size), maxSQLitePages))
	if err := p.openLog(name + "-wal"); err != nil {
		return nil, err
	}
	return p, p.readHeader()
}

func (p *sqlitePages) Close() {
	for _, f := range []*os.File{p.db, p.wal} {
		if f != nil {
			f.Close()
		}
	}
}

// readHeader reads page 1, as the log has it.
func (p *sqlitePages) readHeader() error {
	head, err := p.read(1)
	if err != nil {
		return err
	}
	if p.usable = p.size - int(head[atReserved]); p.usable < 480 {
		return fmt.Errorf("the header reserves %d bytes of each page: %w", head[atReserved], errPage)
	}
	word := func(at int) uint32 { return binary.BigEndian.Uint32(head[at:]) }
	if e := word(atEncoding); e > 1 {
		return fmt.Errorf("the texts have encoding %d, refit reads UTF-8 only", e)
	}
	if n := word(atPages); word(atChange) == word(atValidFor) && n > 0 {
		if n > p.count && len(p.logged) == 0 || n > maxSQLitePages {
			return fmt.Errorf("the header has %d pages, the file %d: %w", n, p.count, errPage)
		}
		p.count = n
	}
	p.used = make([]uint64, p.count/64+1)
	if lock := uint32(lockByte/p.size) + 1; lock <= p.count {
		return p.use(lock)
	}
	return nil
}

// openLog finds the newest committed version of each page in the log. What follows the last
// commit, or does not have the log's checksum, SQLite ignores too.
func (p *sqlitePages) openLog(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.wal = f
	head := make([]byte, walHeader)
	if _, err := f.ReadAt(head, 0); errors.Is(err, io.EOF) {
		return nil // empty: checkSQLite refuses other sizes
	} else if err != nil {
		return err
	}
	return p.readLog(head)
}

// readLog reads the frames of the log behind its header.
func (p *sqlitePages) readLog(head []byte) error {
	order := binary.ByteOrder(binary.LittleEndian)
	if binary.BigEndian.Uint32(head)&1 == 1 {
		order = binary.BigEndian
	}
	sum := walSum{order: order}
	if sum.add(head[:24]); !sum.is(head[24:]) {
		return nil
	}
	pending := map[uint32]int64{}
	frame := make([]byte, walFrame+p.size)
	for at := int64(walHeader); ; at += int64(len(frame)) {
		if _, err := p.wal.ReadAt(frame, at); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		sum.add(frame[:8])
		sum.add(frame[walFrame:])
		if string(frame[8:16]) != string(head[atWALSalt:atWALSalt+8]) || !sum.is(frame[16:]) {
			return nil
		}
		pending[binary.BigEndian.Uint32(frame)] = at + walFrame
		if pages := binary.BigEndian.Uint32(frame[4:]); pages != 0 {
			p.commit(pending, pages)
		}
	}
}

func (p *sqlitePages) commit(pending map[uint32]int64, pages uint32) {
	for n, at := range pending {
		p.logged[n] = at
	}
	clear(pending)
	p.count = min(pages, maxSQLitePages)
}

// walSum is the checksum of SQLite's log.
type walSum struct {
	order  binary.ByteOrder
	s1, s2 uint32
}

func (w *walSum) add(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		w.s1 += w.order.Uint32(b) + w.s2
		w.s2 += w.order.Uint32(b[4:]) + w.s1
	}
}

func (w *walSum) is(b []byte) bool {
	return binary.BigEndian.Uint32(b) == w.s1 && binary.BigEndian.Uint32(b[4:]) == w.s2
}

// read returns a page.
func (p *sqlitePages) read(n uint32) ([]byte, error) {
	if n == 0 || n > p.count {
		return nil, fmt.Errorf("page %d of %d: %w", n, p.count, errPage)
	}
	b := make([]byte, p.size)
	from, at := p.db, int64(n-1)*int64(p.size)
	if logged, ok := p.logged[n]; ok {
		from, at = p.wal, logged
	}
	if _, err := from.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("page %d: %w", n, err)
	}
	return b, nil
}

// use marks a page: a second use is damage.
func (p *sqlitePages) use(n uint32) error {
	if n == 0 || n > p.count {
		return fmt.Errorf("page %d of %d: %w", n, p.count, errPage)
	}
	if p.used[n/64]&(1<<(n%64)) != 0 {
		return fmt.Errorf("page %d is used twice: %w", n, errPage)
	}
	p.used[n/64] |= 1 << (n % 64)
	return nil
}

// take marks a page and returns it.
func (p *sqlitePages) take(n uint32) ([]byte, error) {
	if err := p.use(n); err != nil {
		return nil, err
	}
	return p.read(n)
}

// takeFree marks the free pages, and those that say who has which page.
func (p *sqlitePages) takeFree() error {
	head, err := p.read(1)
	if err != nil {
		return err
	}
	found := uint32(0)
	for trunk := binary.BigEndian.Uint32(head[atFreelist:]); trunk != 0; {
		b, err := p.take(trunk)
		if err != nil {
			return fmt.Errorf("list of free pages: %w", err)
		}
		n := binary.BigEndian.Uint32(b[4:])
		if int(n) > p.usable/4-2 {
			return fmt.Errorf("list of free pages: %d on page %d: %w", n, trunk, errPage)
		}
		for i := range n {
			if err := p.use(binary.BigEndian.Uint32(b[8+4*i:])); err != nil {
				return fmt.Errorf("list of free pages: %w", err)
			}
		}
		found, trunk = found+n+1, binary.BigEndian.Uint32(b)
	}
	if want := binary.BigEndian.Uint32(head[atFreePages:]); found != want {
		return fmt.Errorf("list of free pages: it has %d, the header has %d: %w", found, want, errPage)
	}
	if binary.BigEndian.Uint32(head[atLargestRoot:]) == 0 {
		return nil
	}
	return p.takeMaps()
}

// takeMaps marks the pages that say who has which page.
func (p *sqlitePages) takeMaps() error {
	for n := uint32(2); n <= p.count; n += uint32(p.usable/5) + 1 {
		at := n
		if int64(at-1)*int64(p.size) == lockByte {
			at++
		}
		if err := p.use(at); err != nil {
			return err
		}
	}
	return nil
}

// unused returns the first page that nothing uses, 0 for none.
func (p *sqlitePages) unused() uint32 {
	for n := uint32(1); n <= p.count; n++ {
		if p.used[n/64]&(1<<(n%64)) == 0 {
			return n
		}
	}
	return 0
}
