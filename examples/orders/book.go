package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// This file stands for the database of a real shop.

const (
	unpaid    = "unpaid"
	paid      = "paid"
	cancelled = "cancelled"
)

type order struct {
	ID      string
	Item    string
	State   string // unpaid, paid or cancelled
	Expires time.Time
	Settled time.Time // when it was paid or cancelled
}

var (
	errNoOrder = errors.New("no such order")
	errSettled = errors.New("too late")
)

// A book is a file of orders. Each change is a line at its end, and is on the disk when the call
// returns.
type book struct {
	mu     sync.Mutex
	file   *os.File
	size   int64
	orders map[string]order
}

func openBook(path string) (*book, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	b := &book{file: file, orders: make(map[string]order)}
	for lines := json.NewDecoder(file); ; b.size = lines.InputOffset() {
		var o order
		if lines.Decode(&o) != nil {
			return b, file.Truncate(b.size) // at the end, or where a crash has cut the last line
		}
		b.orders[o.ID] = o
	}
}

func (b *book) add(o order) error {
	b.mu.Lock()
	err := b.writeLocked(o)
	b.mu.Unlock()
	return errors.Join(err, b.file.Sync())
}

// settle ends an unpaid order. Settling it again in the same way is no error: the first answer may
// have been lost.
func (b *book) settle(id, state string, at time.Time) (order, error) {
	o, err := b.decide(id, state, at)
	return o, errors.Join(err, b.file.Sync()) // many wait for the disk at the same time
}

func (b *book) decide(id, state string, at time.Time) (order, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.orders[id]
	switch {
	case !ok:
		return o, errNoOrder
	case o.State == state:
		return o, nil
	case o.State != unpaid:
		return o, fmt.Errorf("%w: the order is %s", errSettled, o.State)
	}
	o.State, o.Settled = state, at
	return o, b.writeLocked(o)
}

func (b *book) writeLocked(o order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err := b.file.WriteAt(line, b.size); err != nil {
		return err // the next line goes over what was written of this one
	}
	b.size += int64(len(line))
	b.orders[o.ID] = o
	return nil
}

func (b *book) all() []order {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.orders))
}

func (b *book) close() error { return b.file.Close() }
