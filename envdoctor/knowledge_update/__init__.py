"""`envdoctor update`: signed packages of the tables, apart from the version of the tool."""
