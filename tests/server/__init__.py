"""The door itself: who may come in, what it does with nonsense, what each era gets around an
answer."""
