package kubelet

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Kinds of pages of a tree.
const (
	indexInner, tableInner = 2, 5
	indexLeaf, tableLeaf   = 10, 13
	maxTreeDepth           = 20 // SQLite's own limit
	maxRecord              = 1 << 30
)

// sqliteTree walks one table or index.
type sqliteTree struct {
	*sqlitePages
	ctx context.Context
	// row gets the records of a table; nil: they are not read whole.
	row func(record []byte) error

	inner, leaf byte
	leafDepth   int
	last        int64
	rows        int64
}

// walk reads all pages of a tree.
func (p *sqlitePages) walk(ctx context.Context, root uint32, row func([]byte) error) (rows int64, err error) {
	t := &sqliteTree{sqlitePages: p, ctx: ctx, row: row, last: math.MinInt64}
	b, err := p.read(root)
	if err != nil {
		return 0, err
	}
	switch b[headerOf(root)] {
	case tableInner, tableLeaf:
		t.inner, t.leaf = tableInner, tableLeaf
	default:
		t.inner, t.leaf = indexInner, indexLeaf
	}
	return t.rows, errAt(t.page(root, 1), t)
}

func errAt(err error, t *sqliteTree) error {
	if err == nil && t.leafDepth == 0 {
		return fmt.Errorf("no leaf: %w", errPage)
	}
	return err
}

// headerOf a page: the first one has that of the database before it.
func headerOf(page uint32) int {
	if page == 1 {
		return sqliteHeader
	}
	return 0
}

func (t *sqliteTree) page(n uint32, depth int) error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	if depth > maxTreeDepth {
		return fmt.Errorf("page %d is deeper than SQLite's trees: %w", n, errPage)
	}
	b, err := t.take(n)
	if err != nil {
		return err
	}
	at := headerOf(n)
	kind, cells := b[at], int(binary.BigEndian.Uint16(b[at+3:]))
	start := at + 8
	if kind == t.inner {
		start += 4
	} else if err := t.checkLeaf(n, kind, depth); err != nil {
		return err
	}
	if start+2*cells > t.usable {
		return fmt.Errorf("page %d has %d cells: %w", n, cells, errPage)
	}
	if err := t.cells(b[:t.usable], at, start, cells, depth); err != nil {
		return fmt.Errorf("page %d: %w", n, err)
	}
	if kind == t.inner {
		return t.page(binary.BigEndian.Uint32(b[at+8:]), depth+1)
	}
	return nil
}

// cells reads the cells of a page whose head is at at, and whose list of cells begins at start.
func (t *sqliteTree) cells(b []byte, at, start, cells, depth int) error {
	areas := make([]area, 0, cells)
	for i := range cells {
		c := int(binary.BigEndian.Uint16(b[start+2*i:]))
		if c < start+2*cells || c+4 > len(b) {
			return fmt.Errorf("cell at %d: %w", c, errPage)
		}
		size, err := t.cell(b, c, b[at], depth)
		if err != nil {
			return err
		}
		areas = append(areas, area{c, c + max(size, 4)})
	}
	return checkAreas(b, at, areas)
}

// checkLeaf: all leaves of a tree are at one depth.
func (t *sqliteTree) checkLeaf(n uint32, kind byte, depth int) error {
	if kind != t.leaf {
		return fmt.Errorf("page %d has kind %d: %w", n, kind, errPage)
	}
	if t.leafDepth == 0 {
		t.leafDepth = depth
	}
	if t.leafDepth != depth {
		return fmt.Errorf("page %d is a leaf at depth %d, others are at %d: %w", n, depth, t.leafDepth, errPage)
	}
	return nil
}

// cell reads a cell and what is below it, and returns its size on this page.
func (t *sqliteTree) cell(b []byte, at int, kind byte, depth int) (size int, err error) {
	r := cellReader{b: b, at: at}
	if kind == t.inner {
		if err := t.page(r.word(), depth+1); err != nil {
			return 0, err
		}
	}
	length := int64(0)
	if kind != tableInner {
		length = r.varint()
	}
	if t.leaf == tableLeaf {
		if err := t.follow(r.varint(), kind); err != nil {
			return 0, err
		}
	}
	if r.bad || length < 0 || length > maxRecord {
		return 0, fmt.Errorf("cell at %d: %w", at, errPage)
	}
	if kind != tableInner {
		err = t.record(&r, length, kind)
	}
	return r.at - at, err
}

// follow: the rows of a table are in the order of their numbers.
func (t *sqliteTree) follow(id int64, kind byte) error {
	if id < t.last || id == t.last && kind == tableLeaf {
		return fmt.Errorf("row %d follows %d: %w", id, t.last, errPage)
	}
	t.last = id
	return nil
}

// record reads that of a cell, of which length bytes are here and on further pages.
func (t *sqliteTree) record(r *cellReader, length int64, kind byte) (err error) {
	t.rows++
	local, over := t.local(length)
	record := r.bytes(local)
	next := uint32(0)
	if over {
		next = r.word()
	}
	if r.bad {
		return fmt.Errorf("cell that ends at %d: %w", r.at, errPage)
	}
	if record, err = t.overflow(record, next, length-int64(local)); err != nil {
		return err
	}
	if t.row != nil && kind == tableLeaf {
		err = t.row(record)
	}
	return err
}

// local is how much of a record is on its tree's page.
func (t *sqliteTree) local(length int64) (local int, over bool) {
	u := int64(t.usable)
	most := u - 35
	if t.leaf == indexLeaf {
		most = (u-12)*64/255 - 23
	}
	if length <= most {
		return int(length), false
	}
	least := (u-12)*32/255 - 23
	if k := least + (length-least)%(u-4); k <= most {
		return int(k), true
	}
	return int(least), true
}

// overflow reads the pages that have the rest of a record.
func (t *sqliteTree) overflow(record []byte, next uint32, rest int64) ([]byte, error) {
	whole := t.row != nil && next != 0
	if whole {
		record = slices.Clone(record)
	}
	for ; rest > 0; rest -= int64(t.usable - 4) {
		b, err := t.take(next)
		if err != nil {
			return nil, fmt.Errorf("rest of a record: %w", err)
		}
		next = binary.BigEndian.Uint32(b)
		if whole {
			record = append(record, b[4:4+min(rest, int64(t.usable-4))]...)
		}
	}
	if next != 0 {
		return nil, fmt.Errorf("a record goes on after its end: %w", errPage)
	}
	return record, nil
}

type area struct{ from, to int }

// checkAreas verifies that cells and free blocks of a page do not overlap, and that what is
// between them is what the page says.
func checkAreas(b []byte, at int, areas []area) error {
	content := int(binary.BigEndian.Uint16(b[at+5:]))
	if content == 0 {
		content = 65536
	}
	for free := int(binary.BigEndian.Uint16(b[at+1:])); free != 0; {
		if free < content || free+4 > len(b) || len(areas) > len(b) {
			return fmt.Errorf("free block at %d: %w", free, errPage)
		}
		areas = append(areas, area{free, free + int(binary.BigEndian.Uint16(b[free+2:]))})
		free = int(binary.BigEndian.Uint16(b[free:]))
	}
	slices.SortFunc(areas, func(a, o area) int { return cmp.Compare(a.from, o.from) })
	end, gaps := content, 0
	for _, a := range areas {
		if a.from < end || a.to > len(b) {
			return fmt.Errorf("cells overlap at %d: %w", a.from, errPage)
		}
		gaps, end = gaps+a.from-end, a.to
	}
	if gaps += max(0, len(b)-end); len(areas) > 0 && gaps != int(b[at+7]) {
		return fmt.Errorf("%d bytes belong to nothing, the page has %d: %w", gaps, b[at+7], errPage)
	}
	return nil
}

// cellReader reads numbers of SQLite. bad is true after the end of its bytes.
type cellReader struct {
	b   []byte
	at  int
	bad bool
}

func (r *cellReader) bytes(n int) []byte {
	if r.bad || n < 0 || n > len(r.b)-r.at {
		r.bad = true
		return nil
	}
	r.at += n
	return r.b[r.at-n : r.at]
}

func (r *cellReader) word() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *cellReader) varint() int64 {
	var v uint64
	for i := range 9 {
		b := r.bytes(1)
		switch {
		case b == nil:
			return 0
		case i == 8:
			return int64(v<<8 | uint64(b[0]))
		}
		if v = v<<7 | uint64(b[0]&0x7f); b[0] < 0x80 {
			return int64(v)
		}
	}
	return int64(v)
}

// column of a record: a number, or a text.
type column struct {
	number int64
	text   string
}

// columns returns the first n columns of a record; those that are missing are empty.
func columns(record []byte, n int) ([]column, error) {
	head := cellReader{b: record}
	length := head.varint()
	if head.bad || length < int64(head.at) || length > int64(len(record)) {
		return nil, fmt.Errorf("head of a record: %w", errPage)
	}
	head.b = record[:length]
	body := cellReader{b: record, at: int(length)}
	out := make([]column, n)
	for i := 0; i < n && head.at < len(head.b); i++ {
		kind := head.varint()
		if head.bad || kind < 0 || kind > maxRecord {
			return nil, fmt.Errorf("head of a record: %w", errPage)
		}
		if out[i] = readColumn(&body, kind); body.bad {
			return nil, fmt.Errorf("body of a record: %w", errPage)
		}
	}
	return out, nil
}

// readColumn reads the value of a kind from the body of a record.
func readColumn(body *cellReader, kind int64) (c column) {
	switch {
	case kind >= 12:
		c.text = string(body.bytes(int(kind-12) / 2))
	case kind == 9:
		c.number = 1
	case kind >= 1 && kind <= 7:
		c.number = number(body.bytes([]int{1, 2, 3, 4, 6, 8, 8}[kind-1]))
	}
	return c
}

// number is a signed number of up to eight bytes.
func number(b []byte) (v int64) {
	for i, x := range b {
		if i == 0 {
			v = int64(int8(x))
			continue
		}
		v = v<<8 | int64(x)
	}
	return v
}

// sqliteContent is what a database has.
type sqliteContent struct {
	Pages uint32
	// Objects of Kubernetes that kine's table has.
	Objects int64
}

type sqliteObject struct {
	kind, name, table, sql string
	root                   uint32
}

// readSQLite reads every page of a database, as `PRAGMA integrity_check` does. It compares the
// number of entries of each index with its table, but not their order: that needs the
// collations of SQLite.
func readSQLite(ctx context.Context, name string) (c sqliteContent, err error) {
	p, err := openSQLite(name)
	if err != nil {
		return c, err
	}
	defer p.Close()
	if c.Pages = p.count; p.count == 0 {
		return c, fmt.Errorf("%s is empty: %w", name, errPage)
	}
	if err := p.takeFree(); err != nil {
		return c, err
	}
	schema, err := p.schema(ctx)
	if err != nil {
		return c, fmt.Errorf("schema: %w", err)
	}
	rows := map[string]int64{}
	for _, o := range schema {
		if err := p.readObject(ctx, o, rows, &c); err != nil {
			return c, err
		}
	}
	if n := p.unused(); n != 0 {
		return c, fmt.Errorf("nothing uses page %d: %w", n, errPage)
	}
	return c, nil
}

// readObject reads a table, or an index and compares its size with rows, those of the tables.
func (p *sqlitePages) readObject(ctx context.Context, o sqliteObject, rows map[string]int64, c *sqliteContent) error {
	alive := map[string]bool{}
	var row func([]byte) error
	if o.kind == "table" && o.name == "kine" {
		row = func(record []byte) error { return countObject(alive, record) }
	}
	n, err := p.walk(ctx, o.root, row)
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.kind, o.name, err)
	}
	c.Objects += int64(len(alive))
	if o.kind == "table" {
		rows[o.name] = n
	} else if n != rows[o.table] && !strings.Contains(strings.ToUpper(o.sql), " WHERE ") {
		return fmt.Errorf("index %s has %d entries, table %s %d rows: %w", o.name, n, o.table, rows[o.table], errPage)
	}
	return nil
}

// schema returns the tables, then the indexes.
func (p *sqlitePages) schema(ctx context.Context) (out []sqliteObject, err error) {
	_, err = p.walk(ctx, 1, func(record []byte) error {
		c, err := columns(record, 5)
		if err != nil {
			return err
		}
		o := sqliteObject{kind: c[0].text, name: c[1].text, table: c[2].text, root: uint32(c[3].number), sql: c[4].text}
		if o.root != 0 {
			out = append(out, o)
		}
		return nil
	})
	slices.SortStableFunc(out, func(a, b sqliteObject) int { return cmp.Compare(b.kind, a.kind) })
	return out, err
}

// countObject adds a row of kine: each row is a change of an object, the newest last.
func countObject(alive map[string]bool, record []byte) error {
	c, err := columns(record, 4)
	if err != nil || !strings.HasPrefix(c[1].text, "/registry/") {
		return err
	}
	if delete(alive, c[1].text); c[3].number == 0 {
		alive[c[1].text] = true
	}
	return nil
}
