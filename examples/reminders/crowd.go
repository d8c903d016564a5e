package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// This file holds the story's subscribers, each with a connection of its own that
// it reads events from. crowd.mu guards what they got.

// dialers bounds how many of them connect at the same time.
const dialers = 16

// A receipt is an event that arrived at a subscriber.
type receipt struct {
	event
	at time.Time
}

type crowd struct {
	url    string
	client http.Client
	ctx    context.Context
	hangUp context.CancelFunc
	names  []string // fixed once join has returned
	gone   sync.WaitGroup

	mu  sync.Mutex
	got map[string][]receipt
}

func newCrowd(url string) *crowd {
	c := &crowd{url: url, client: http.Client{Transport: &http.Transport{}}, got: map[string][]receipt{}}
	c.ctx, c.hangUp = context.WithCancel(context.Background())
	return c
}

// join opens n streams and returns when the service has all of them.
func (c *crowd) join(n int) error {
	c.names = []string{"anna", "ben", "lead", "head"}
	for i := len(c.names); i < n; i++ {
		c.names = append(c.names, fmt.Sprintf("viewer %d", i))
	}
	names := make(chan string, n)
	for _, name := range c.names {
		names <- name
	}
	close(names)
	failed := make(chan error, dialers)
	for range dialers {
		go func() {
			for name := range names {
				if err := c.subscribe(name); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	var err error
	for range dialers {
		if e := <-failed; e != nil {
			err = e
		}
	}
	return err
}

// subscribe opens a stream and returns once the service has greeted, which is when
// it will not miss anything.
func (c *crowd) subscribe(name string) error {
	request, err := http.NewRequestWithContext(c.ctx, "GET", c.url+"/events?name="+url.QueryEscape(name), nil)
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(response.Body)
	if !lines.Scan() {
		response.Body.Close()
		return fmt.Errorf("%s was not greeted: %v", name, lines.Err())
	}
	c.gone.Go(func() {
		defer response.Body.Close()
		for lines.Scan() {
			now := time.Now()
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			r := receipt{at: now}
			if err := json.Unmarshal([]byte(data), &r.event); err != nil {
				r.event = event{Kind: "unreadable", Text: data}
			}
			c.mu.Lock()
			c.got[name] = append(c.got[name], r)
			c.mu.Unlock()
		}
	})
	return nil
}

// receipts returns what everybody has got so far.
func (c *crowd) receipts() map[string][]receipt {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string][]receipt{}
	for name, receipts := range c.got {
		all[name] = receipts[:len(receipts):len(receipts)]
	}
	return all
}

// leave hangs up and waits until every reader has noticed.
func (c *crowd) leave() {
	c.hangUp()
	c.gone.Wait()
	c.client.CloseIdleConnections()
}
