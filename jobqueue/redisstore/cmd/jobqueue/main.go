// Command jobqueue is the command of the same name in jobqueue/cmd/jobqueue, whose README explains
// it, for stores in Redis too:
//
//	jobqueue stats -url redis://localhost:6379/0
//	jobqueue dead orders/expire -url redis://:secret@localhost:6379/0?prefix=shop
//
// A URL with master_name asks the Sentinel at its address, and one of a node of a Cluster leads to
// all of it. The prefix is that of redisstore.WithPrefix, and the other parameters are those of
// redis.ParseURL.
package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/go-timingwheel/timingwheel/jobqueue"
	"github.com/go-timingwheel/timingwheel/jobqueue/internal/command"
	"github.com/go-timingwheel/timingwheel/jobqueue/redisstore"
)

func main() {
	logging.Disable() // its errors are returned as well
	command.Main(open)
}

// open opens the store at a URL, where there must be one: looking makes none.
func open(ctx context.Context, u *url.URL) (*jobqueue.Client, func() error, error) {
	address := *u
	query := u.Query()
	prefix := cmp.Or(query.Get("prefix"), "jobqueue")
	if strings.ContainsAny(prefix, "{}") {
		return nil, nil, errors.New("the prefix has braces")
	}
	query.Del("prefix")
	address.RawQuery = query.Encode()
	client, err := connect(ctx, address.String(), query.Has("master_name"))
	if err != nil {
		return nil, nil, err
	}
	there, err := client.Exists(ctx, prefix+":meta").Result()
	if err == nil && there == 0 {
		err = errors.New("there is no job queue in it")
	}
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	// Who looks at the jobs of a server that may evict them loses none.
	c := jobqueue.New(redisstore.New(client, redisstore.WithPrefix(prefix),
		redisstore.WithPatience(3*time.Second), redisstore.WithEviction()))
	return c, func() error { return errors.Join(c.Close(), client.Close()) }, nil
}

// connect asks a server whether it is a node of a Cluster, and returns a client.
func connect(ctx context.Context, address string, sentinel bool) (redis.UniversalClient, error) {
	if sentinel {
		o, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, err
		}
		return redis.NewFailoverClient(o), nil
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(o)
	info, err := client.Info(ctx, "cluster").Result()
	if err == nil && !strings.Contains(info, "cluster_enabled:1") {
		return client, nil
	}
	if err = errors.Join(err, client.Close()); err != nil {
		return nil, err
	}
	all, err := redis.ParseClusterURL(address)
	if err != nil {
		return nil, err
	}
	return redis.NewClusterClient(all), nil
}
