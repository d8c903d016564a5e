package main
func main(){ impls() }
