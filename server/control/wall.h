/* wall - the wall clock, which people and the network may set: what is measured with it goes along when it is */
#ifndef MUSTER_SERVER_WALL_H
#define MUSTER_SERVER_WALL_H

struct core;

/* Once a turn, before anything else is done in it. */
void wall_follow(struct core *c);

#endif
